import type { IStateDB } from '@jupyterlab/statedb';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { Signal, type ISignal } from '@lumino/signaling';
import { NAMESPACE } from './tokens';

const KEY = `${NAMESPACE}:sidebar`;

/** Nodes and devices come and go; the oldest choices are forgotten. */
const MOST_CHOICES = 200;

/** Where the choices are kept between two visits. */
export type FoldStore = Pick<IStateDB, 'fetch' | 'save'>;

/**
 * What a person has folded or unfolded in the sidebar, remembered with the
 * layout of the page. What nobody has touched is as the view thinks best.
 */
export class Folds {
  constructor(private readonly _store: FoldStore | null = null) {}

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Reads what was chosen before; what was chosen meanwhile stands. */
  async restore(): Promise<void> {
    const saved = await this._store?.fetch(KEY);
    if (typeof saved !== 'object' || saved === null) {
      return;
    }
    const before = Object.entries(saved).filter(
      (entry): entry is [string, boolean] => typeof entry[1] === 'boolean'
    );
    this._choices = new Map([...before, ...this._choices]);
    this._changed.emit();
  }

  isOpen(key: string, byDefault = true): boolean {
    return this._choices.get(key) ?? byDefault;
  }

  setOpen(key: string, open: boolean): void {
    // Deleted first, so that the newest choice is the last.
    this._choices.delete(key);
    this._choices.set(key, open);
    const kept = [...this._choices].slice(-MOST_CHOICES);
    this._choices = new Map(kept);
    this._changed.emit();
    const saved: ReadonlyPartialJSONObject = Object.fromEntries(kept);
    this._store?.save(KEY, saved).catch(reason => {
      console.error('The layout of the GPU sidebar was not saved', reason);
    });
  }

  private _choices = new Map<string, boolean>();
  private readonly _changed = new Signal<this, void>(this);
}
