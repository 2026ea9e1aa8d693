import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IRenderMimeRegistry, type IRenderMime } from '@jupyterlab/rendermime';
import {
  ITranslator,
  nullTranslator,
  type TranslationBundle
} from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';
import {
  CELL_MIME_TYPE,
  detailRows,
  readCellResult,
  summaryParts,
  type ICellResult
} from '../cellResult';
import { NAMESPACE } from '../tokens';

/** Before the HTML of the same output, which has the rank 50. */
const RANK = 40;

export const cellResultPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:cell-result`,
  description: 'Shows in the theme what a %%gpu cell used of its GPU.',
  autoStart: true,
  requires: [IRenderMimeRegistry],
  optional: [ITranslator],
  activate: (
    _app: JupyterFrontEnd,
    rendermime: IRenderMimeRegistry,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('jupyter_gpupool');
    rendermime.addFactory(
      {
        // Only text is put into the page, so notebooks need not be trusted.
        safe: true,
        mimeTypes: [CELL_MIME_TYPE],
        createRenderer: () => new CellResultRenderer(trans)
      },
      RANK
    );
  }
};

/** One line, which opens to all figures; plain elements, as there may be many. */
export class CellResultRenderer
  extends Widget
  implements IRenderMime.IRenderer
{
  constructor(private readonly _trans: TranslationBundle) {
    super();
    this.addClass('jp-GpuPool-cellResult');
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const open = this.node.querySelector('details')?.open === true;
    const result = readCellResult(model.data[CELL_MIME_TYPE]);
    this.node.replaceChildren(
      ...(result
        ? this._parts(result, open)
        : [
            element(
              'div',
              this._trans.__(
                'What this cell used of its GPU cannot be read; it was written by another version.'
              )
            )
          ])
    );
  }

  private _parts(result: ICellResult, open: boolean): HTMLElement[] {
    const { figures, title, hint, note } = result;
    const parts: HTMLElement[] = [];
    if (figures === null) {
      parts.push(element('div', title));
    } else {
      const details = document.createElement('details');
      details.open = open;
      details.append(
        element(
          'summary',
          [title, ...summaryParts(figures, this._trans)].join(' · ')
        ),
        table(
          detailRows(figures, this._trans),
          this._trans.__('What the cell used of its GPU')
        )
      );
      parts.push(details);
    }
    if (note !== null) {
      parts.push(element('div', note));
    }
    if (hint !== null) {
      const line = element('div', hint);
      line.className = 'jp-GpuPool-cellHint';
      parts.push(line);
    }
    return parts;
  }
}

function table(rows: readonly [string, string][], name: string): HTMLElement {
  const made = document.createElement('table');
  made.setAttribute('aria-label', name);
  const body = made.createTBody();
  for (const [label, value] of rows) {
    const row = body.insertRow();
    const header = element('th', label);
    header.setAttribute('scope', 'row');
    row.append(header, element('td', value));
  }
  return made;
}

function element(tag: string, text: string): HTMLElement {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}
