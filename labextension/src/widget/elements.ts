/** The parts that a view is put together from; each writes to the page only what has changed. */

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className: string,
  text?: string
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== undefined) {
    // textContent, never innerHTML: messages carry names that other people chose.
    made.textContent = text;
  }
  return made;
}

export function setText(node: Node, text: string): void {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

export function setAttribute(node: Element, name: string, value: string): void {
  if (node.getAttribute(name) !== value) {
    node.setAttribute(name, value);
  }
}

export function setHidden(node: HTMLElement, hidden: boolean): void {
  if (node.hidden !== hidden) {
    node.hidden = hidden;
  }
}

/** A list of sentences. */
export function setItems(list: HTMLElement, texts: readonly string[]): void {
  const shown = [...list.children].map(item => item.textContent);
  if (
    shown.length !== texts.length ||
    texts.some((text, index) => text !== shown[index])
  ) {
    list.replaceChildren(...texts.map(text => element('li', '', text)));
  }
  setHidden(list, texts.length === 0);
}

export function button(text: string, pressed: () => void): HTMLButtonElement {
  const made = element('button', 'jp-GpuUsage-button', text);
  made.type = 'button';
  made.hidden = true;
  made.addEventListener('click', pressed);
  return made;
}

/** A labelled bar. */
export interface IBar {
  row: HTMLElement;
  /** Shows `part`, 0..1, and says `text`. */
  set(part: number, text: string): void;
}

export function bar(label: string): IBar {
  const row = element('div', 'jp-GpuUsage-row');
  const track = element('div', 'jp-GpuUsage-track');
  const fill = element('div', 'jp-GpuUsage-fill');
  const value = element('span', 'jp-GpuUsage-value');
  const name = element('span', 'jp-GpuUsage-label', label);
  track.setAttribute('role', 'meter');
  track.setAttribute('aria-label', label);
  track.setAttribute('aria-valuemin', '0');
  track.setAttribute('aria-valuemax', '100');
  // The meter says all of it.
  name.setAttribute('aria-hidden', 'true');
  value.setAttribute('aria-hidden', 'true');
  track.append(fill);
  row.append(name, track, value);
  return {
    row,
    set(part, text) {
      const percent = Math.round(100 * Math.min(1, Math.max(0, part)));
      if (track.getAttribute('aria-valuenow') !== String(percent)) {
        track.setAttribute('aria-valuenow', String(percent));
        // A transform needs no layout, a width would.
        fill.style.transform = `scaleX(${percent / 100})`;
      }
      setAttribute(track, 'aria-valuetext', text);
      setText(value, text);
    }
  };
}
