import {
  nullTranslator,
  type ITranslator,
  type TranslationBundle
} from '@jupyterlab/translation';

/** Our words in the user's language; in English without a translator. */
export function ourWords(translator: ITranslator | null): TranslationBundle {
  return (translator ?? nullTranslator).load('jupyter_gpupool');
}
