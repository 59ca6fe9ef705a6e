// Browsers start no workers from the file system. There, the script of the search runs in a hidden
// frame instead, which has messages to and from the page like a worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      script.src = address;
      this.loaded = new Promise((resolve) => script.addEventListener("load", resolve));
      frame.contentDocument.head.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => {
        this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
      });
    }
  };
}
