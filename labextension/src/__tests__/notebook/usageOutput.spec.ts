import { waitFor } from '@testing-library/dom';
import { Sanitizer } from '@jupyterlab/apputils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import { RenderMimeRegistry } from '@jupyterlab/rendermime';
import type { PartialJSONValue } from '@lumino/coreutils';
import { Signal } from '@lumino/signaling';
import {
  USAGE_MIME_TYPE,
  UsageOutput,
  type INotebookKernel
} from '../../notebook/usageOutput';
import { usageOutputPlugin } from '../../plugins/usageOutput';
import { aKernel } from '../samples';
import { everythingIsSeen } from '../seen';

// Of the package only the token is needed here; the rest wants a browser.
jest.mock('@jupyterlab/notebook', () => ({ INotebookTracker: {} }));

const SAVED = { summary: 'state: attached', taken_at: 1.8e9 };
const SERVER = { baseUrl: '/base', token: 't' };

/** The session of a notebook. */
class Session {
  readonly kernelChanged = new Signal<this, void>(this);
  session: { kernel: { id: string } } | null = null;

  change(id: string | null): void {
    this.session = id === null ? null : { kernel: { id } };
    this.kernelChanged.emit();
  }
}

let session: Session;
let output: UsageOutput;
const asked = jest.fn();
let gone: boolean;

beforeEach(() => {
  asked.mockReset();
  gone = false;
  Object.assign(globalThis, {
    fetch: async (url: string) => {
      asked(url.split('?')[0]);
      return gone
        ? new Response('{"message": "There is no kernel k1."}', { status: 404 })
        : new Response(
            JSON.stringify({ ...aKernel(), software: true, samples: [] })
          );
    }
  });
  everythingIsSeen();
  session = new Session();
  output = new UsageOutput(SERVER, session as unknown as INotebookKernel);
});

afterEach(() => output.dispose());

async function render(data: unknown): Promise<void> {
  await output.renderModel({
    trusted: false,
    metadata: {},
    data: { [USAGE_MIME_TYPE]: data as PartialJSONValue },
    setData: () => undefined
  });
}

const shows = (part: string) =>
  waitFor(() => expect(output.node.textContent).toContain(part));

it('shows the saved figures until the notebook has a kernel, and then its GPU', async () => {
  await render(SAVED);
  expect(output.node.textContent).toMatch(
    /^state: attachedThis notebook has no kernel\. The figures are of .*2027/
  );
  expect(asked).not.toHaveBeenCalled();

  session.change('k1');
  await shows('no GPU attached');
  expect(asked).toHaveBeenLastCalledWith('/base/gpupool/api/kernels/k1/usage');
  expect(output.node.textContent).not.toContain('state: attached');
  expect(output.node.children).toHaveLength(1);
});

it('follows the notebook to another kernel', async () => {
  session.change('k1');
  await render(SAVED);
  await shows('no GPU attached');
  session.change('k2');
  await waitFor(() =>
    expect(asked).toHaveBeenLastCalledWith('/base/gpupool/api/kernels/k2/usage')
  );
  session.change(null);
  await shows('This notebook has no kernel.');
  expect(output.node.children).toHaveLength(1);
});

it('shows the saved figures of a kernel that the server does not know', async () => {
  gone = true;
  session.change('k1');
  await render(SAVED);
  await shows('There is no kernel k1. The figures are of');
  await shows('state: attached');
});

it('leaves nothing behind', async () => {
  session.change('k1');
  await render(SAVED);
  await shows('no GPU attached');
  output.dispose();
  asked.mockReset();
  session.change('k2');
  expect(asked).not.toHaveBeenCalled();
});

it.each([[null], ['text'], [[]], [{ summary: 1, taken_at: 'x' }]])(
  'does without what somebody wrote: %j',
  async data => {
    await render(data);
    expect(output.node.textContent).toContain('of an unknown time.');
  }
);

it('comes before the widget in each notebook, trusted or not', () => {
  const rendermime = new RenderMimeRegistry({ sanitizer: new Sanitizer() });
  const widget = 'application/vnd.jupyter.widget-view+json';
  const renderer = () => new UsageOutput(SERVER, session as never);
  rendermime.addFactory(
    { safe: false, mimeTypes: [widget], createRenderer: renderer },
    -10
  );
  const panel = { content: { rendermime }, sessionContext: session };
  void usageOutputPlugin.activate(
    { serviceManager: { serverSettings: SERVER } } as never,
    {
      forEach: (each: (panel: NotebookPanel) => void) => each(panel as never),
      widgetAdded: { connect: () => undefined }
    } as never
  );
  const bundle = { [widget]: {}, 'text/html': '', [USAGE_MIME_TYPE]: {} };
  expect(rendermime.preferredMimeType(bundle, 'ensure')).toBe(USAGE_MIME_TYPE);
  expect(rendermime.preferredMimeType(bundle, 'any')).toBe(USAGE_MIME_TYPE);
});
