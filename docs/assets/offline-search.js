// Search runs in a worker, and a browser starts none for a page that was opened from a folder. Where that is so, a
// hidden frame of this page takes the worker's place: the same script, the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.onmessage = null
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      // What the worker says goes to whoever listens to this object; what is said to it waits until it has loaded.
      inside.postMessage = data => {
        const event = new MessageEvent("message", { data: structuredClone(data) })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      inside.importScripts = (...urls) => Promise.all(urls.map(one => load(inside.document, new URL(one, url))))
      this.inside = load(inside.document, url).then(() => inside)
    }
    postMessage(data) {
      this.inside.then(inside => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
    }
    terminate() {}
  }
  const load = (page, url) => new Promise((done, failed) => {
    const script = page.createElement("script")
    script.src = url
    script.onload = done
    script.onerror = failed
    page.body.appendChild(script)
  })
}
