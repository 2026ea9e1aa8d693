import type { ISignal } from '@lumino/signaling';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { DashboardModel } from './model';
import type { IPlace } from './place';

/** What each part of the dashboard is given; parts act by commands alone. */
export interface IDashboardContext {
  model: DashboardModel;
  commands: CommandRegistry;
  trans: TranslationBundle;
  /** The address of a place, for links. */
  link: (place: IPlace) => string;
  themeChanged: ISignal<unknown, unknown> | null;
}
