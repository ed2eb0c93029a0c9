// Search runs in a worker. Browsers refuse workers to a page that was opened from a folder, so
// there the worker's script runs in a hidden frame of the page. The name of this file keeps
// Zensical from loading its own version of it from a network (tools/check_site.py checks that).
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = "<!doctype html><title>Search</title>"
      this.frame.onload = () => this.start(new URL(address, document.baseURI).href)
      document.body.append(this.frame)
    }

    start(address) {
      const inside = this.frame.contentWindow
      inside.postMessage = data => setTimeout(() => this.onmessage?.({ data }))
      const script = inside.document.createElement("script")
      script.onerror = () => this.onerror?.(new Event("error", { cancelable: true }))
      script.onload = () => {
        const waiting = this.waiting
        this.waiting = null
        waiting.forEach(data => this.postMessage(data))
      }
      script.src = address
      inside.document.body.append(script)
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else setTimeout(() => this.frame.contentWindow?.onmessage?.({ data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
