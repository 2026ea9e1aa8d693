/** The widget: live figures where the page can ask the server, else the last ones that the kernel had. */
import { liveView } from './live_view.js';
import { savedView } from './saved_view.js';
import { serverOf } from './server.js';

export function render({ model, el }) {
  const server = serverOf(document);
  const kernel = model.get('kernel_id');
  if (!server || !kernel) {
    return savedView(model, el);
  }
  let end = liveView(el, server, kernel, refused => {
    end = savedView(model, el, `${refused.message} The figures are of`);
  });
  return () => end();
}
