import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { JSONExt, type ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { GpuPool } from '../api/types';
import { termsOf } from '../commands/arguments';
import type { INotebookTerms } from '../commands/notebooks';
import { parseShare } from '../figures/share';

/** Key in the metadata of a notebook; its value is an `IAttachOptions`. */
export const METADATA_KEY = 'gpupool';

/**
 * Reads the metadata of a notebook. Anybody may have written it: what cannot
 * be a request counts as nothing, and the server checks the rest again.
 */
export function readTerms(value: unknown): GpuPool.IAttachOptions | null {
  if (!isObject(value)) {
    return null;
  }
  const { share } = value;
  return typeof share === 'string' && parseShare(share).ok
    ? { share: share.trim(), ...termsOf(value) }
    : null;
}

/** A request as it is written into a notebook: how long it waited is not kept. */
export function writtenTerms(
  options: GpuPool.IAttachOptions
): GpuPool.IAttachOptions {
  return { share: options.share.trim(), ...termsOf({ ...options }) };
}

/** The metadata of the open notebooks. */
export class NotebookTerms implements INotebookTerms {
  constructor(private readonly _notebooks: INotebookTracker) {}

  of(kernelId: string | null): GpuPool.IAttachOptions | null {
    for (const panel of this._panels(kernelId)) {
      const terms = readTerms(panel.model?.getMetadata(METADATA_KEY));
      if (terms !== null) {
        return terms;
      }
    }
    return null;
  }

  remember(kernelId: string, options: GpuPool.IAttachOptions): void {
    const terms = { ...writtenTerms(options) } as ReadonlyPartialJSONObject;
    for (const panel of this._panels(kernelId)) {
      const known = panel.model?.getMetadata(METADATA_KEY) ?? null;
      // A document that is written to becomes dirty, also by the same value.
      if (!panel.model?.readOnly && !JSONExt.deepEqual(known, terms)) {
        panel.model?.setMetadata(METADATA_KEY, terms);
      }
    }
  }

  private _panels(kernelId: string | null): NotebookPanel[] {
    return kernelId === null
      ? []
      : this._notebooks.filter(
          panel => panel.sessionContext.session?.kernel?.id === kernelId
        );
  }
}

function isObject(value: unknown): value is ReadonlyPartialJSONObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
