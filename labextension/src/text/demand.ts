import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDemand } from '../figures/demand';
import { formatRoom } from '../figures/share';
import { formatGuess } from './format';

/** One word for a pill; null: the sentence says all. */
export function demandWord(
  demand: IDemand,
  trans: TranslationBundle
): string | null {
  switch (demand.level) {
    case 'none':
    case 'quiet':
    case 'room':
    case 'busy':
      return null;
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
  const largest = formatRoom(demand.largest);
  const free = formatRoom(demand.free);
  switch (demand.level) {
    case 'none':
      return trans.__('No GPU takes requests now.');
    case 'full':
      return trans.__('All is in use; a request would wait.');
    case 'waiting':
      return demand.eta === null
        ? trans.__('%1 free, up to %2 on one GPU.', free, largest)
        : trans.__(
            '%1 free, up to %2 on one GPU; the first waits about %3 more.',
            free,
            largest,
            formatGuess(demand.eta)
          );
    default:
      return trans.__('You can have up to %1 GPU now.', largest);
  }
}
