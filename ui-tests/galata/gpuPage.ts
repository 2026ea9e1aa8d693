import type { IJupyterLabPageFixture } from '@jupyterlab/galata/lib/jupyterlabpage';
import { expect, type Locator } from '@playwright/test';
import type { Stack } from './stack';

export type Application = 'JupyterLab' | 'Notebook 7';

/** A kernel start on a loaded machine, ms. */
const KERNEL_MS = 60_000;

/** JupyterLab or Notebook as a person sees it: everything is found by role and name. */
export class GpuPage {
  constructor(
    readonly page: IJupyterLabPageFixture,
    readonly stack: Stack,
    readonly application: Application
  ) {
    page.on('console', message => {
      // A refused request is an answer; the browser logs each as a failed resource.
      if (
        message.type() === 'error' &&
        !message.text().includes('Failed to load resource')
      ) {
        this._onError(`${message.text()}\n${message.location().url}`);
      }
    });
    page.on('pageerror', error => this._onError(`${error}\n${error.stack}`));
  }

  /** Opens a notebook in a fresh workspace and waits until its kernel is connected. */
  async open(notebook: string): Promise<void> {
    const path =
      this.application === 'JupyterLab'
        ? `lab/tree/${notebook}?reset`
        : `notebooks/${notebook}`;
    await this.page.goto(`${this.stack.url}/${path}`);
    await this.kernelConnected();
  }

  async kernelConnected(): Promise<void> {
    await expect(
      this.page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']")
    ).toBeVisible({ timeout: KERNEL_MS });
    // The indicator is idle before the connection is; our button knows the kernel only afterwards.
    await expect(this.toolbarButton).toBeEnabled({ timeout: KERNEL_MS });
  }

  /** Opens a notebook of these cells with the sidebar beside it. */
  async start(notebook: string, ...cells: string[]): Promise<void> {
    this.stack.writeNotebook(notebook, ...cells);
    await this.open(notebook);
    await this.openSidebar();
    await expect(this.kernel(notebook)).toBeVisible();
  }

  async openSidebar(): Promise<void> {
    if (await this.sidebar.isVisible()) {
      return;
    }
    if (this.application === 'JupyterLab') {
      await this.page.getByRole('tab', { name: 'GPU pool' }).click();
    } else {
      await this.toolbarButton.click();
      await this.item('Show GPU Pool').click();
    }
    await expect(this.sidebar).toBeVisible();
  }

  // -- parts

  get sidebar(): Locator {
    return this.page.getByRole('region', { name: 'GPU pool', exact: true });
  }

  section(name: 'Pool' | 'Kernels' | 'Queue'): Locator {
    return this.sidebar.getByRole('region', { name, exact: true });
  }

  /** The button that folds a section; its name is the title and the summary. */
  toggle(name: 'Pool' | 'Kernels' | 'Queue'): Locator {
    return this.sidebar.getByRole('button', {
      name: new RegExp(`^${name}\\b`)
    });
  }

  get devices(): Locator {
    return this.section('Pool')
      .getByRole('list', { name: /^Devices/ })
      .getByRole('listitem')
      .filter({ has: this.page.getByRole('meter') });
  }

  slider(label: string): Locator {
    return this.kernel(label).getByRole('slider', {
      name: `Resize the share of ${label}`
    });
  }

  kernel(label: string): Locator {
    return this.sidebar
      .getByRole('list', { name: 'Kernels', exact: true })
      .getByRole('listitem', { name: label, exact: true });
  }

  state(label: string): Locator {
    return this.kernel(label).getByRole('status');
  }

  shareInput(label: string): Locator {
    return this.kernel(label).getByRole('textbox', {
      name: `GPU share for ${label}`
    });
  }

  button(label: string, start: string): Locator {
    return this.kernel(label).getByRole('button', {
      name: new RegExp(`^${start}`)
    });
  }

  get toolbarButton(): Locator {
    return this.page.getByRole('button', { name: /^GPU of this notebook: / });
  }

  /** One line of a menu that is open. */
  item(name: string | RegExp): Locator {
    // One of several choices has a role of its own.
    return this.page
      .getByRole('menuitem', { name })
      .or(this.page.getByRole('menuitemradio', { name }));
  }

  notification(text: string | RegExp): Locator {
    return this.page.getByRole('alert').filter({ hasText: text });
  }

  cell(number: number): Locator {
    return this.page.locator('.jp-Notebook-cell').nth(number);
  }

  output(number: number): Locator {
    return this.cell(number).locator('.jp-OutputArea');
  }

  get dashboard(): Locator {
    return this.page.getByRole('region', { name: 'GPU dashboard' });
  }

  // -- doing things

  /** Chooses from the menu of the toolbar's button, through its submenus. */
  async choose(...path: string[]): Promise<void> {
    const last = this.item(path[path.length - 1]);
    // A menu that was opened before the page knows its kernel offers nothing.
    await expect(async () => {
      await this.page.keyboard.press('Escape');
      await this.toolbarButton.click();
      for (const name of path.slice(0, -1)) {
        await this.item(name).hover();
      }
      await expect(last).toBeEnabled({ timeout: 3000 });
    }).toPass({ timeout: 30_000 });
    await last.click();
  }

  async setTheme(
    theme: 'Light' | 'Dark' | 'Dark High Contrast'
  ): Promise<void> {
    const name = `JupyterLab ${theme}`;
    await this.page.evaluate(chosen => window.galata.setTheme(chosen), name);
    await expect(this.page.locator('body')).toHaveAttribute(
      'data-jp-theme-name',
      name
    );
  }

  async attach(label: string, share: string): Promise<void> {
    await this.shareInput(label).fill(share);
    await this.button(label, 'Attach').click();
    await expect(this.state(label)).toHaveText('attached');
  }

  async run(number: number): Promise<void> {
    await this.cell(number).locator('.cm-content').click();
    await this.page.keyboard.press('Control+Enter');
  }

  async runAndWait(number: number, text: string | RegExp): Promise<void> {
    await this.run(number);
    await expect(this.output(number)).toContainText(text, {
      timeout: KERNEL_MS
    });
  }

  noErrors(): void {
    expect(this._errors).toEqual([]);
  }

  // JupyterLab and Notebook have errors of their own; ours name our files or plugins.
  private _onError(text: string): void {
    if (text.includes('gpupool')) {
      this._errors.push(text);
    }
  }

  private readonly _errors: string[] = [];
}
