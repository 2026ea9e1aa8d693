// A page as jsdom makes it, with what browsers and Node have and jsdom lacks.
const { TestEnvironment } = require('jest-environment-jsdom');

module.exports = class extends TestEnvironment {
  async setup() {
    await super.setup();
    const page = this.global;
    Object.assign(page.navigator, { clipboard: {} });
    Object.assign(page, {
      fetch,
      Headers,
      Request,
      Response,
      TextDecoder,
      TextEncoder,
      DragEvent: class extends page.Event {},
      ResizeObserver: class {
        observe() {}
        unobserve() {}
        disconnect() {}
      },
      requestIdleCallback: callback => page.setTimeout(callback, 0),
      matchMedia: () => ({
        matches: false,
        addListener() {},
        removeListener() {},
        addEventListener() {},
        removeEventListener() {}
      })
    });
  }
};
