import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry, type IRenderMime } from '@jupyterlab/rendermime';
import { ITranslator, type TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';
import { CommandIDs } from '../commands/ids';
import { NAMESPACE } from '../model/tokens';
import {
  outOfMemoryText,
  shareEdit,
  type ILargerShare,
  type IOutOfMemory
} from '../notebook/cellMemory';
import {
  CELL_MIME_TYPE,
  detailRows,
  readCellResult,
  summaryParts,
  type ICellResult
} from '../notebook/cellResult';
import { ourWords } from './translation';

/** Before the HTML of the same output, which has the rank 50. */
const RANK = 40;

export const cellResultPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:cell-result`,
  description: 'Shows in the theme what a %%gpu cell used of its GPU.',
  autoStart: true,
  requires: [IRenderMimeRegistry],
  optional: [ITranslator, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    rendermime: IRenderMimeRegistry,
    translator: ITranslator | null,
    notebooks: INotebookTracker | null
  ): void => {
    const trans = ourWords(translator);
    const actions = notebooks ? new CellActions(app, notebooks) : null;
    rendermime.addFactory(
      {
        // Only text is put into the page, so notebooks need not be trusted.
        safe: true,
        mimeTypes: [CELL_MIME_TYPE],
        createRenderer: () => new CellResultRenderer(trans, actions)
      },
      RANK
    );
  }
};

/** What the buttons below a cell do to it and to its kernel. */
export interface ICellActions {
  /** Has the `%%gpu` line of the cell that shows `node` ask for a share. */
  rewrite(node: HTMLElement, share: string): void;
  /** Changes the size of what the cell's kernel holds. */
  resize(node: HTMLElement, share: string): void;
}

class CellActions implements ICellActions {
  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _notebooks: INotebookTracker
  ) {}

  rewrite(node: HTMLElement, share: string): void {
    const notebook = this._panel(node)?.content;
    const index =
      notebook?.widgets.findIndex(cell => cell.node.contains(node)) ?? -1;
    if (!notebook || index < 0) {
      return;
    }
    const { sharedModel } = notebook.widgets[index].model;
    const edit = shareEdit(sharedModel.getSource(), share);
    if (edit !== null) {
      sharedModel.updateSource(edit.start, edit.end, edit.text);
    }
    // Shift-Enter runs it.
    notebook.activeCellIndex = index;
    notebook.activate();
  }

  resize(node: HTMLElement, share: string): void {
    const kernelId = this._panel(node)?.sessionContext.session?.kernel?.id;
    if (kernelId !== undefined) {
      void this._app.commands.execute(CommandIDs.resize, { kernelId, share });
    }
  }

  private _panel(node: HTMLElement) {
    return this._notebooks.find(panel => panel.node.contains(node));
  }
}

/** One line, which opens to all figures; plain elements, as there may be many. */
export class CellResultRenderer
  extends Widget
  implements IRenderMime.IRenderer
{
  constructor(
    private readonly _trans: TranslationBundle,
    private readonly _actions: ICellActions | null = null
  ) {
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
    const { figures, title, hint, note, outOfMemory } = result;
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
    if (outOfMemory !== null) {
      parts.push(this._lacking(outOfMemory));
    }
    if (hint !== null) {
      const line = element('div', hint);
      line.className = 'jp-GpuPool-cellHint';
      parts.push(line);
    }
    return parts;
  }

  private _lacking(lacking: IOutOfMemory): HTMLElement {
    const line = element('div', `${outOfMemoryText(lacking, this._trans)} `);
    line.className = 'jp-GpuPool-cellLacking';
    const button = this._button(lacking.way, lacking.larger);
    if (button !== null) {
      line.append(button);
    }
    return line;
  }

  private _button(
    way: IOutOfMemory['way'],
    larger: ILargerShare | null
  ): HTMLElement | null {
    const actions = this._actions;
    const share = larger?.share ?? null;
    // A held share that is not to be had now is not waited for.
    const offered = way === 'cell' || (way === 'resize' && larger?.free);
    if (actions === null || share === null || !offered) {
      return null;
    }
    const button = element(
      'button',
      way === 'cell'
        ? this._trans.__('Use %1', `%%gpu ${share}`)
        : this._trans.__('Resize to %1', share)
    ) as HTMLButtonElement;
    button.type = 'button';
    button.className = 'jp-GpuPool-cellButton';
    button.onclick = () =>
      way === 'cell'
        ? actions.rewrite(this.node, share)
        : actions.resize(this.node, share);
    return button;
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
