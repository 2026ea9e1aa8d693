/** What stands where no live figures can come from: the last ones, and a way to ask the kernel for others. */
import { button } from './elements';
import { savedText } from './savedText';
import type { IWidgetModel } from './widgetModel';

/** A kernel that has not answered for so long is computing, or is not there. */
const PATIENCE_MS = 5000;

const ALONE =
  'This page has no way to the Jupyter server that runs the kernel, so the figures do not move; they are of';

/** Shows the text of `model` in `el`; `why` is a sentence about what is missing. Returns what ends it. */
export function savedView(
  model: IWidgetModel,
  el: HTMLElement,
  why = ALONE
): () => void {
  const { root, draw, say } = savedText();
  let timer: number | undefined;

  function redraw(): void {
    clearTimeout(timer);
    draw(
      {
        summary: String(model.get('summary') ?? ''),
        taken_at: Number(model.get('taken_at'))
      },
      why
    );
    refresh.disabled = false;
  }

  const refresh = button('Refresh', () => {
    refresh.disabled = true;
    say('The kernel is asked; it answers when it is free.');
    timer = window.setTimeout(() => {
      refresh.disabled = false;
      say(
        'The kernel has not answered yet: it is computing, or it does not run any more.'
      );
    }, PATIENCE_MS);
    try {
      // Only on this click: messages of a kernel count as activity, and keep an idle GPU.
      model.send({ type: 'refresh' });
    } catch (error) {
      clearTimeout(timer);
      refresh.disabled = false;
      say(
        `The kernel cannot be asked (${error instanceof Error ? error.message : String(error)}).`
      );
    }
  });
  refresh.hidden = false;

  root.append(refresh);
  el.append(root);
  model.on('change:taken_at', redraw);
  redraw();
  return () => {
    clearTimeout(timer);
    model.off('change:taken_at', redraw);
    root.remove();
  };
}
