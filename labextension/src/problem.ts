/** Why there is nothing to show. */
export interface IProblem {
  /**
   * `pool`: the server answers, the pool does not. `setting`: the server
   * cannot ask the pool as it is configured. `server`: the Jupyter server
   * does not answer. `missing`: it answers without our extension.
   */
  kind: 'pool' | 'setting' | 'server' | 'missing';
  message: string;
}
