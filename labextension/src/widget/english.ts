import type { TranslationBundle } from '@jupyterlab/translation';

function filled(text: string, args: readonly unknown[]): string {
  return text.replace(/%(\d)/g, (_, place) => String(args[place - 1]));
}

/**
 * The words of `text/` in a page that has no translator of ours: a widget is
 * one file, which any page may load. Of a bundle it has what `text/` uses.
 */
export const ENGLISH = {
  __: (text: string, ...args: unknown[]) => filled(text, args),
  _n: (one: string, many: string, n: number, ...args: unknown[]) =>
    filled(n === 1 ? one : many, [n, ...args])
} as TranslationBundle;
