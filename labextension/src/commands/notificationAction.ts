import type { Notification } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

/** A button of a notification that runs a command. */
export function notificationAction(
  commands: CommandRegistry,
  command: string,
  args: ReadonlyPartialJSONObject,
  label: string,
  caption?: string
): Notification.IAction {
  return {
    label,
    caption,
    callback: () => void commands.execute(command, args)
  };
}
