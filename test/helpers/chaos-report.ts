import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { isLongRun } from './chaos.ts';

/**
 * The report of the chaos tests: each promise, the result, and the command that repeats the test.
 *
 * In: a finding of each fault-injection test. Out: a line on standard error; in the long form also a separate file in
 * `data/chaos/`, and report.md and report.json of all files, so that the long form can run in parts.
 */

export const promises = {
  P1: 'each event of a 200 is in the lake exactly once, even if processes are killed',
  P2: 'a 200 survives a power cut',
  P3: 'damaged bytes are reported, never silently skipped',
  P4: 'a reader sees a commit completely or not at all',
  P5: 'a full disk loses no acknowledged event',
  P6: 'while the broker hangs, every request gets a response within two seconds',
  P7: 'a backlog does not slow down imports',
  P8: 'a retry with the same Idempotency-Key is stored once',
  P9: 'every event is counted',
  P10: 'an export request produces one result',
  P11: 'download links cannot be forged and expire on time',
  P12: 'invalid input is rejected, and nothing of it is stored',
  P13: 'no user reads data of another account',
  P14: 'a data folder, a stream and a lake have one owner',
  P15: 'a backup contains every event that was acknowledged before it began',
  P16: 'no file contains an erased person',
  P17: 'a lost node costs seconds',
  P18: 'faults of an object store lose and repeat no commit',
  P19: 'revoked access ends within a second',
} as const;
export type PromiseId = keyof typeof promises;

export interface Finding {
  readonly promise: PromiseId;
  /** The test in a few words; unique among the findings of its promise. */
  readonly what: string;
  /** The figures to reach, in words. */
  readonly wanted: string;
  /** Measured figures; their names end in the unit (`slowestMs`). */
  readonly figures: Readonly<Record<string, number | string>>;
  readonly reached: boolean;
  /** Reason and extent of a failure. */
  readonly shortfall?: string;
  readonly seed?: number;
  /** The command that repeats the run. */
  readonly again: string;
}

type Kept = Finding & { readonly at: string; readonly node: string; readonly cores: number };

const folder = path.resolve(import.meta.dirname, '../../data/chaos');
const promiseIds = Object.keys(promises) as PromiseId[];

/** Turns `lostEvents` into "lost events". */
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
  return `# Fault-injection results\n\n| promise | test | wanted | measured | reached | command |\n|---|---|---|---|---|---|\n${rows.join('\n')}\n`;
}

/** Prints a finding, and in a long run keeps it for the report. */
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
  // several tests may be here at once: each renders all findings, so that the last report is complete
  const findings = readdirSync(folder)
    .filter((name) => /^P\d+ .*\.json$/.test(name))
    .map((name) => JSON.parse(readFileSync(path.join(folder, name), 'utf8')) as Kept)
    .toSorted((a, b) => a.what.localeCompare(b.what));
  writeFileSync(path.join(folder, 'report.json'), `${JSON.stringify(findings, null, 2)}\n`);
  writeFileSync(path.join(folder, 'report.md'), renderReport(findings));
}
