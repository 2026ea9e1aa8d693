/** The widget: live figures where the page can ask the server, else the last ones that the kernel had. */
import { liveView } from './liveView';
import { savedView } from './savedView';
import { serverOf } from './server';
import type { IWidgetModel } from './widgetModel';

function render(options: { model: IWidgetModel; el: HTMLElement }): () => void {
  const { model, el } = options;
  const server = serverOf(document);
  const kernel = model.get('kernel_id');
  if (!server || typeof kernel !== 'string' || kernel === '') {
    return savedView(model, el);
  }
  let end = liveView(el, server, kernel, refused => {
    end = savedView(model, el, `${refused.message} The figures are of`);
  });
  return () => end();
}

export default { render };
