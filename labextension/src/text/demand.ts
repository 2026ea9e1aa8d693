import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDemand } from '../figures/demand';
import { formatMilli } from '../figures/share';
import { formatGuess } from './format';

/** One word for a pill. */
export function demandWord(demand: IDemand, trans: TranslationBundle): string {
  switch (demand.level) {
    case 'none':
      return trans.__('no GPU');
    case 'quiet':
      return trans.__('quiet');
    case 'room':
      return trans.__('room');
    case 'busy':
      return trans.__('busy');
    case 'full':
      return trans.__('full');
    case 'waiting':
      return trans.__('%1 waiting', demand.waiting);
  }
}

/** The numbers behind the word, as one sentence. */
export function demandSentence(
  demand: IDemand,
  trans: TranslationBundle
): string {
  const largest = formatMilli(demand.largest);
  const free = formatMilli(demand.free);
  switch (demand.level) {
    case 'none':
      return trans.__('No device lends now.');
    case 'full':
      return trans.__(
        '%1 of %2 GPUs lent; a request would wait.',
        formatMilli(demand.lent),
        demand.devices
      );
    case 'waiting':
      return demand.eta === null
        ? trans.__('%1 free in all, up to %2 on one GPU.', free, largest)
        : trans.__(
            '%1 free in all, up to %2 on one GPU; the first waits about %3 more.',
            free,
            largest,
            formatGuess(demand.eta)
          );
    default:
      return trans.__('A request for up to %1 is granted at once.', largest);
  }
}
