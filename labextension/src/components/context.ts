import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import { useEffect, useReducer } from 'react';
import type { GpuPool } from '../api/types';
import type { Folds } from '../model/folds';
import type { IGpuPool } from '../model/tokens';

/** What each part of the sidebar is given; parts act by commands alone. */
export interface IContext {
  model: IGpuPool;
  commands: CommandRegistry;
  trans: TranslationBundle;
  /** What is folded away, remembered. */
  folds: Folds;
  /** What the notebook of a kernel was attached with last; null: nothing. */
  terms?: (kernelId: string) => GpuPool.IAttachOptions | null;
  /** The kernel of the notebook or console in front; null: there is none. */
  front?: () => string | null;
  /** What is said at the first visit, and how it is put away for good. */
  introduction?: { readonly shown: boolean; done: () => void };
  /** Opens the document of a kernel; absent where the front end has none. */
  open?: (path: string) => void;
}

/** Whether a part is unfolded, and how to change that. */
export function useFold(
  { folds }: IContext,
  key: string,
  byDefault = true
): [boolean, () => void] {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    const slot = () => redraw();
    folds.changed.connect(slot);
    return () => {
      folds.changed.disconnect(slot);
    };
  }, [folds]);
  const open = folds.isOpen(key, byDefault);
  return [open, () => folds.setOpen(key, !open)];
}
