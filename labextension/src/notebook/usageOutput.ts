import type { ISessionContext } from '@jupyterlab/apputils';
import type { IRenderMime } from '@jupyterlab/rendermime';
import type { ReadonlyPartialJSONValue } from '@lumino/coreutils';
import { Widget } from '@lumino/widgets';
import { liveView } from '../widget/liveView';
import { savedText, type ISaved } from '../widget/savedText';
import type { IServer } from '../widget/server';

/** What a kernel writes beside the widget (jupyter_gpupool/widget/usage.py). */
export const USAGE_MIME_TYPE = 'application/vnd.gpupool.usage+json';

/** Which kernel a notebook has now. */
export type INotebookKernel = Pick<
  ISessionContext,
  'kernelChanged' | 'session'
>;

/**
 * `GpuUsage` in the output of a notebook: live for the kernel that the notebook has now.
 *
 * A widget ends with its kernel, and a notebook that is opened again would say
 * so instead of showing the GPU. The figures come from the server anyway.
 */
export class UsageOutput extends Widget implements IRenderMime.IRenderer {
  constructor(
    private readonly _server: IServer,
    private readonly _kernel: INotebookKernel
  ) {
    super();
    _kernel.kernelChanged.connect(this._show, this);
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this._saved = readSaved(model.data[USAGE_MIME_TYPE]);
    this._show();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._kernel.kernelChanged.disconnect(this._show, this);
      this._end();
      super.dispose();
    }
  }

  private _show(): void {
    this._end();
    const id = this._kernel.session?.kernel?.id;
    if (id === undefined) {
      this._showSaved('This notebook has no kernel. The figures are of');
    } else {
      this._end = liveView(this.node, this._server, id, refused =>
        this._showSaved(`${refused.message} The figures are of`)
      );
    }
  }

  private _showSaved(why: string): void {
    const { root, draw } = savedText();
    draw(this._saved, why);
    this.node.append(root);
    this._end = () => root.remove();
  }

  private _saved: ISaved = { summary: '', taken_at: 0 };
  private _end: () => void = () => undefined;
}

/** Anybody may have written it: what is not as expected counts as absent. */
function readSaved(data: ReadonlyPartialJSONValue | undefined): ISaved {
  const { summary, taken_at } = (data ?? {}) as Record<string, unknown>;
  return {
    summary: typeof summary === 'string' ? summary : '',
    taken_at: typeof taken_at === 'number' ? taken_at : 0
  };
}
