#!/usr/bin/env bash
# What three organisations do, on one machine in folders of their own: three-sites.sh [FOLDER]
# Every line below is typed by somebody: NORTH is who runs the consortium, the others are sites.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-$(mktemp -d)}
mkdir -p "$work" && cd "$work"
python3 "$here/records.py" mercy.csv 400 1
python3 "$here/records.py" clinic.csv 300 2
python3 "$here/records.py" harbour.csv 350 3
python3 "$here/records.py" test.csv 300 4 # public rows
cp "$here/readmission.toml" . # the files that it names are next to it

gossamer pki init north # NORTH
for site in mercy clinic harbour; do
    gossamer pki invite $site --out $site.invite # NORTH, to each site by a way that others do not read
done
# MERCY and CLINIC listen, HARBOUR dials out only
gossamer pki join mercy.invite --records 400 --listen 127.0.0.1:${PORT:-7443} --data mercy.csv --cap 8
gossamer pki join clinic.invite --records 300 --listen 127.0.0.1:$((${PORT:-7443} + 1)) --data clinic.csv --cap 8
gossamer pki join harbour.invite --records 350 --data harbour.csv --cap 8
for site in mercy clinic harbour; do
    gossamer pki approve $site $site/$site.request # NORTH
done
gossamer study pack readmission.toml --deadline 10 --tick 0.1 # NORTH
for site in mercy clinic harbour; do
    gossamer pki accept north/north.roster --site $site --yes
    cp test.csv $site/test.csv
    gossamer peer check north/readmission-1.study --site $site --seconds 0
done
for site in mercy clinic harbour; do # at the same time, each on its own machine
    gossamer peer run north/readmission-1.study --site $site >$site.txt 2>&1 &
done
wait
tail -n 3 mercy.txt
gossamer certificate verify */readmission-1/run/certificate.json --study north/readmission-1.study
echo "everything is in $work"
