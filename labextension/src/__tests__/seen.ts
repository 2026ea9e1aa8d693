/** What jsdom lacks for views that draw while they are seen: here all of them are, and nothing is drawn. */
export function everythingIsSeen(): void {
  Object.assign(globalThis, {
    IntersectionObserver: class {
      constructor(seen: (entries: { isIntersecting: boolean }[]) => void) {
        seen([{ isIntersecting: true }]);
      }
      observe() {}
      disconnect() {}
    }
  });
  HTMLCanvasElement.prototype.getContext = () => null;
}
