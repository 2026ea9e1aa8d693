/** How long an answer may take: a network that drops packets refuses nothing, and answers nothing. */

/** What the server knows without asking anybody for long. */
export const ANSWER_SECONDS = 15;
/** What it may have to wait for: a worker that ends, a share that changes its size. */
export const VERB_SECONDS = 60;

/** Aborts its signal after so many seconds, or together with another one, until it is ended. */
export function limit(
  seconds: number,
  other?: AbortSignal
): { signal: AbortSignal; end: () => void } {
  const controller = new AbortController();
  const abort = () => controller.abort();
  const timer = setTimeout(abort, 1000 * seconds);
  if (other?.aborted) {
    abort();
  }
  other?.addEventListener('abort', abort);
  return {
    signal: controller.signal,
    end: () => {
      clearTimeout(timer);
      other?.removeEventListener('abort', abort);
    }
  };
}
