import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { IGpuPool } from '../tokens';

/** What each part of the sidebar is given; parts act by commands alone. */
export interface IContext {
  model: IGpuPool;
  commands: CommandRegistry;
  trans: TranslationBundle;
  /** Opens the document of a kernel; absent where the front end has none. */
  open?: (path: string) => void;
}
