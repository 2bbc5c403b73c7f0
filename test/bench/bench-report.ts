import { mkdirSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { formatTable } from '../../src/demo/demo-report.ts';

/** Prints a benchmark's table, and writes its figures and the machine's properties to `data/bench/` as JSON. */
export function reportBench(
  name: string,
  head: readonly string[],
  rows: readonly (readonly string[])[],
  figures: unknown,
): void {
  const folder = path.resolve(import.meta.dirname, '../../data/bench');
  mkdirSync(folder, { recursive: true });
  const machine = { node: process.version, cores: availableParallelism() };
  writeFileSync(path.join(folder, `${name}.json`), `${JSON.stringify({ name, machine, figures }, null, 2)}\n`);
  process.stdout.write(`\n${name} (node ${machine.node}, ${machine.cores} cores)\n\n${formatTable(head, rows)}\n\n`);
}

/** Returns the median of an odd number of figures. */
export function median(figures: readonly number[]): number {
  return figures.toSorted((a, b) => a - b)[Math.floor(figures.length / 2)] ?? 0;
}

export function sumOf(figures: readonly number[]): number {
  return figures.reduce((total, figure) => total + figure, 0);
}

/** Formats the median, minimum and maximum of some ratios: `0.49 [0.47 to 0.52]`. */
export function formatSpread(ratios: readonly number[]): string {
  const [least, most] = [Math.min(...ratios), Math.max(...ratios)];
  return `${median(ratios).toFixed(2)} [${least.toFixed(2)} to ${most.toFixed(2)}]`;
}
