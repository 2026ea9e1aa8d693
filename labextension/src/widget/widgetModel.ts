/** What anywidget gives a page of the Python half. */
export interface IWidgetModel {
  get(name: 'kernel_id' | 'summary' | 'taken_at'): unknown;
  on(event: string, listener: () => void): void;
  off(event: string, listener: () => void): void;
  /** A message of a kernel counts as activity: only ever on a click. */
  send(content: object): void;
}
