/** Pictures of our elements: light, dark, and 200 % zoom. `make snapshots` makes them anew. */
import { hostname } from 'node:os';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page, TestInfo } from '@playwright/test';
import { expect, test } from '../fixtures';
import { ADD } from '../programs';

const NOTEBOOK = 'picture.ipynb';
/** Which fonts the pictures were made with, and on which machine: nodes have its name. */
const FONTS = join(__dirname, '..', 'snapshots', 'fonts.txt');

/** What letters look like here, and the machine's name; pictures made with others say nothing. */
async function lookOf(page: Page): Promise<string> {
  const drawn = await page.evaluate(() => {
    // A digest of some, drawn in the fonts of the page.
    const canvas = document.createElement('canvas');
    canvas.width = 300;
    canvas.height = 40;
    const context = canvas.getContext('2d');
    if (context === null) {
      throw new Error('no canvas');
    }
    const { fontFamily } = getComputedStyle(document.body);
    context.font = `13px ${fontFamily}`;
    context.fillText('GPU 0.25 of 2 free, Äffchen gjpqy', 2, 20);
    const { data } = context.getImageData(0, 0, 300, 40);
    let digest = 0;
    for (const byte of data) {
      digest = (Math.imul(digest, 31) + byte) >>> 0;
    }
    return `${fontFamily} ${digest.toString(16)}`;
  });
  return `${drawn} ${hostname()}`;
}

async function skipElsewhere(page: Page, testInfo: TestInfo): Promise<void> {
  const fonts = await lookOf(page);
  if (['all', 'changed'].includes(testInfo.config.updateSnapshots)) {
    writeFileSync(FONTS, `${fonts}\n`);
  }
  const made = existsSync(FONTS) ? readFileSync(FONTS, 'utf8').trim() : 'none';
  test.skip(
    made !== fonts,
    `the pictures were made with other fonts or on another machine (${made}) than this one (${fonts}); make snapshots`
  );
}

test('sidebar and menu', async ({ gpu, page, stack }, testInfo) => {
  // Somebody else holds a part, so that bars have all their colours.
  await gpu.start(NOTEBOOK, ADD);
  await skipElsewhere(page, testInfo);
  const lease = await stack.gpupool(
    ...['lease', 'request', '-p', '0.3', '--user', 'maria', '--label', 'train']
  );
  await gpu.attach(NOTEBOOK, '0.25');
  await expect(gpu.toggle('Pool')).toHaveAccessibleName(
    'Pool 1.45 of 2 GPUs free'
  );
  await expect(gpu.kernel(NOTEBOOK)).toContainText('Can grow to');
  // It comes with the worker's first report.
  await expect(gpu.kernel(NOTEBOOK).locator('.jp-GpuPool-usage')).toBeVisible();
  // What was pressed last shows its focus; what moves with time is covered.
  await page.mouse.move(900, 500);
  await gpu.cell(0).locator('.cm-content').click();
  const mask = [
    gpu.sidebar.locator('.jp-GpuPool-usage'),
    gpu.sidebar.locator('.jp-GpuPool-chart')
  ];

  for (const theme of ['Light', 'Dark'] as const) {
    await gpu.setTheme(theme);
    await expect
      .soft(gpu.section('Pool'))
      .toHaveScreenshot(`pool-${theme.toLowerCase()}.png`, { mask });
    await expect
      .soft(gpu.section('Kernels'))
      .toHaveScreenshot(`kernels-${theme.toLowerCase()}.png`, { mask });
    await gpu.toolbarButton.click();
    const menu = page.getByRole('menu', { name: 'GPU of this notebook' });
    await expect.soft(menu).toHaveScreenshot(`menu-${theme.toLowerCase()}.png`);
    await page.keyboard.press('Escape');
  }

  await test.step('200 % zoom: half the pixels of the style sheet', async () => {
    await gpu.setTheme('Light');
    await page.setViewportSize({ width: 600, height: 430 });
    await expect
      .soft(gpu.sidebar)
      .toHaveScreenshot('sidebar-zoomed.png', { mask });
  });
  await stack.gpupool('lease', 'release', lease);
});

test('dashboard', async ({ gpu, page }, testInfo) => {
  await page.goto('?reset&gpupool=quotas');
  const { dashboard } = gpu;
  const views = dashboard.getByRole('navigation', { name: 'Views' });
  await expect(
    dashboard.getByRole('button', { name: 'Save project default' })
  ).toBeVisible();
  await skipElsewhere(page, testInfo);
  // Figures and curves are of the moment.
  const mask = [
    dashboard.locator('.jp-GpuPool-totals dd'),
    dashboard.locator('.jp-GpuPool-plot')
  ];
  for (const theme of ['Light', 'Dark'] as const) {
    await gpu.setTheme(theme);
    for (const [link, name] of [
      ['Quotas', 'quotas'],
      ['Cluster', 'cluster']
    ]) {
      await views.getByRole('link', { name: link, exact: true }).click();
      if (name === 'cluster') {
        await expect(
          dashboard.getByRole('region', { name: 'Queue', exact: true })
        ).toBeVisible();
      }
      await page.mouse.move(0, 0);
      await views.getByRole('link', { name: link, exact: true }).blur();
      await expect
        .soft(dashboard)
        .toHaveScreenshot(`${name}-${theme.toLowerCase()}.png`, { mask });
    }
  }
});
