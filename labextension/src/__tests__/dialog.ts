/**
 * The dialog, once all of it is there: React fills its header and its body when it has time.
 */
export async function theDialog(label: string): Promise<HTMLElement> {
  for (;;) {
    const dialog = document.querySelector<HTMLElement>('.jp-Dialog');
    const filled = ['.jp-Dialog-header', '.jp-Dialog-body'].every(
      part => dialog?.querySelector(part)?.textContent
    );
    if (dialog && filled && button(dialog, label)) {
      return dialog;
    }
    await new Promise(resolve => setTimeout(resolve, 10));
  }
}

/** Presses a button of the dialog, once it is there; returns what the dialog said. */
export async function answerDialog(label: string): Promise<string> {
  const dialog = await theDialog(label);
  const said = dialog.textContent ?? '';
  button(dialog, label)!.click();
  return said;
}

function button(dialog: HTMLElement, label: string): HTMLElement | undefined {
  return [...dialog.querySelectorAll('button')].find(
    one => one.textContent?.trim() === label
  );
}
