import { AxeBuilder } from '@axe-core/playwright';
import { expect } from '@playwright/test';
import type { GpuPage } from './gpuPage';

/** Rules of WCAG 2.0 to 2.2 at levels A and AA, and what axe holds for good practice. */
const RULES = [
  'wcag2a',
  'wcag2aa',
  'wcag21a',
  'wcag21aa',
  'wcag22aa',
  'best-practice'
];

/** Fails with what axe finds wrong in an element of ours; `include` is a selector of it, `without` are rules that it cannot keep. */
export async function expectAccessible(
  gpu: GpuPage,
  what: string,
  include: string,
  without: string[] = []
): Promise<void> {
  const { page } = gpu;
  await expect(page.locator(include).first()).toBeVisible();
  // Without legacy mode the report is put together in a page of its own.
  const { violations, passes } = await new AxeBuilder({ page })
    .setLegacyMode(true)
    .withTags(RULES)
    .disableRules(without)
    .include(include)
    .analyze();
  const found = violations.flatMap(({ id, help, nodes }) =>
    nodes.map(node => `${id}: ${help}: ${node.html} ${node.failureSummary}`)
  );
  expect.soft(found, `${what}: ${passes.length} rules passed`).toEqual([]);
  expect(
    passes.length,
    `rules that had something to look at: ${what}`
  ).toBeGreaterThan(2);
}
