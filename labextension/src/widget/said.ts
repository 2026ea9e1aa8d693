import type { GpuPool } from '../api/types';

type Said = GpuPool.ISentence & Partial<GpuPool.ISaid>;

/*
 * In the place of `text/sentence.ts` in the widget's bundle (build-widget.mjs):
 * each widget of a notebook carries its program, so the words come with the
 * answers of the server, and not the catalogue with the widget.
 */

export function render(said: Said): string {
  return said.text ?? said.code;
}

export function firstClause(said: Said): string {
  return said.first ?? render(said);
}

/** There is no catalogue: an id stands for itself. */
export function isKnown(): boolean {
  return false;
}
