import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { isLongRun } from './chaos.ts';

/**
 * The report of the chaos tests: what was promised, what was reached, and the command that repeats it.
 *
 * In: a finding of each test that breaks something. Out: its line on standard error; in the long form also a file of
 * its own in `data/chaos/`, and report.md and report.json over all of them, so that the long form can be run in parts.
 */

export const promises = {
  P1: '200 means: in the lake exactly once, whatever is killed',
  P2: '200 survives a power cut',
  P3: 'damage is reported, never skipped in silence',
  P4: 'a commit is seen whole or not at all',
  P5: 'a full disk costs nothing',
  P6: 'a stalled broker costs nothing',
  P7: 'a backlog costs nothing',
  P8: 'a retry with the same Idempotency-Key is stored once',
  P9: 'every event has a place',
  P10: 'a job gives one result',
  P11: 'links cannot be forged, and end on time',
  P12: 'bad input is harmless',
  P13: 'nobody reads what is not theirs',
  P14: 'one owner',
  P15: 'a backup is a service',
  P16: 'erased is gone',
  P19: 'what is taken back ends',
} as const;
export type PromiseId = keyof typeof promises;

export interface Finding {
  readonly promise: PromiseId;
  /** What was done, in a few words; names the finding among those of its promise. */
  readonly what: string;
  /** The figure to reach, in words. */
  readonly wanted: string;
  /** What was counted and measured; names with their unit (`slowestMs`). */
  readonly figures: Readonly<Record<string, number | string>>;
  readonly reached: boolean;
  /** Where it fell short: by how much, and why. */
  readonly shortfall?: string;
  readonly seed?: number;
  /** The command that repeats the run. */
  readonly again: string;
}

type Kept = Finding & { readonly at: string; readonly node: string; readonly cores: number };

const folder = path.resolve(import.meta.dirname, '../../data/chaos');
const promiseIds = Object.keys(promises) as PromiseId[];

/** `lostEvents` becomes "lost events". */
function inWords(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

function figuresInWords(figures: Finding['figures']): string {
  return Object.entries(figures)
    .map(([name, value]) => `${inWords(name)} ${typeof value === 'number' ? value.toLocaleString('en-US') : value}`)
    .join(', ');
}

function renderReport(findings: readonly Kept[]): string {
  const rows = promiseIds.flatMap((id) => {
    const own = findings.filter((finding) => finding.promise === id);
    if (own.length === 0) return [`| ${id} ${promises[id]} | | | not run yet | | |`];
    return own.map((finding) => {
      const reached = finding.reached ? 'yes' : `**no**: ${finding.shortfall ?? 'see the log'}`;
      return `| ${id} ${promises[id]} | ${finding.what} | ${finding.wanted} | ${figuresInWords(finding.figures)} | ${reached} | \`${finding.again}\` |`;
    });
  });
  return `# Shown by breaking things\n\n| promise | what | wanted | seen | reached | again |\n|---|---|---|---|---|---|\n${rows.join('\n')}\n`;
}

/** Tells what a test has found, and keeps it for the report when the run is a long one. */
export function recordFinding(finding: Finding): void {
  const seed = finding.seed === undefined ? '' : `, seed ${finding.seed}`;
  process.stderr.write(
    `${finding.promise} ${finding.what}: ${finding.reached ? 'reached' : 'NOT reached'}; ${figuresInWords(finding.figures)}${seed}; again: ${finding.again}\n`,
  );
  if (!isLongRun) return;
  mkdirSync(folder, { recursive: true });
  const kept: Kept = { ...finding, at: new Date().toISOString(), node: process.version, cores: availableParallelism() };
  writeFileSync(
    path.join(folder, `${finding.promise} ${finding.what.replaceAll(/[^a-z0-9]+/gi, '-')}.json`),
    `${JSON.stringify(kept, null, 2)}\n`,
  );
  // several tests may get here at once: each renders all that is there, so that the last one is right
  const findings = readdirSync(folder)
    .filter((name) => /^P\d+ .*\.json$/.test(name))
    .map((name) => JSON.parse(readFileSync(path.join(folder, name), 'utf8')) as Kept)
    .toSorted((a, b) => a.what.localeCompare(b.what));
  writeFileSync(path.join(folder, 'report.json'), `${JSON.stringify(findings, null, 2)}\n`);
  writeFileSync(path.join(folder, 'report.md'), renderReport(findings));
}
