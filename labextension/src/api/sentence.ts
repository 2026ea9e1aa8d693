/** What the pool says to people: the id of a sentence and its parameters. */
export interface ISentence {
  code: string;
  params: { readonly [name: string]: Param };
  /** The words, for what has no catalogue of its own: the widget. */
  text?: string;
  /** Of several clauses the first one. */
  first?: string;
}

/** A typed value in a sentence. */
export type Param =
  | { kind: 'milli' | 'mib' | 'seconds' | 'count' | 'number'; value: number }
  /** The name of a user; empty: another user, whose name is not for the reader. */
  | { kind: 'user'; value: string }
  | { kind: 'device' | 'node' | 'project' | 'text'; value: string }
  | { kind: 'sentence'; value: ISentence }
  | { kind: 'list'; value: readonly Param[] };
