/** How long an answer may take: a network that drops packets refuses nothing, and answers nothing. */

/** Of what the server knows without asking anybody for long. */
const ANSWER_SECONDS = 15;
/** Of what it may have to wait for: a worker that ends, a share that changes its size. */
const VERB_SECONDS = 60;

/** How long whoever asks waits for an answer at most. */
export function secondsOf(method: string): number {
  return method === 'GET' ? ANSWER_SECONDS : VERB_SECONDS;
}

/**
 * What `ask` answers in time; it is given a signal that aborts it, as
 * `controller` does, too. Throws what `ask` throws, or that nobody has answered.
 */
export async function inTime<T>(
  seconds: number,
  ask: (signal: AbortSignal) => Promise<T>,
  controller = new AbortController()
): Promise<T> {
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    controller.abort();
  }, 1000 * seconds);
  try {
    return await ask(controller.signal);
  } catch (error) {
    throw late
      ? new Error(`The Jupyter server did not answer within ${seconds} s.`)
      : error;
  } finally {
    clearTimeout(timer);
  }
}
