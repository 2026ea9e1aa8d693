import type { TranslationBundle } from '@jupyterlab/translation';

/**
 * Milli-GPU of a number of GPUs as a person writes it; nothing is null.
 * @throws Error that names what is no such number.
 */
export function readGpus(
  text: string,
  trans: TranslationBundle
): number | null {
  const written = text.trim();
  if (written === '') {
    return null;
  }
  if (!/^\d{1,6}([.,]\d{1,3})?$/.test(written)) {
    throw new Error(
      trans.__(
        '“%1” is no number of GPUs; write for example 2 or 0.5, in steps of 0.001.',
        written
      )
    );
  }
  return Math.round(parseFloat(written.replace(',', '.')) * 1000);
}

/**
 * A weight as a person writes it.
 * @throws Error that names what is no weight.
 */
export function readWeight(text: string, trans: TranslationBundle): number {
  const written = text.trim();
  if (!/^\d{1,6}$/.test(written)) {
    throw new Error(
      trans.__('“%1” is no weight; write a whole number.', written)
    );
  }
  return parseInt(written, 10);
}
