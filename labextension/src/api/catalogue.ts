/** The words of one sentence; two forms where they depend on a number. */
export type Template = string | { by: string; one: string; other: string };

/** Answer of `GET api/catalogue`: templates by the id of the sentence. */
export interface ICatalogue {
  readonly [code: string]: Template;
}

let known: ICatalogue | null = null;

/** Takes what the server handed out as the words of this page. */
export function learn(catalogue: ICatalogue): void {
  known = catalogue;
}

/** Whether the server has handed the words out. */
export function hasWords(): boolean {
  return known !== null;
}

export function templateOf(code: string): Template | undefined {
  return known?.[code];
}
