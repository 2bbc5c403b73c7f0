import { cpSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import type { Random } from '../../src/demo/random.ts';
import { recordFinding } from './chaos-report.ts';

/** The ways in which a disk damages a file. */
export const damages = ['truncate', 'flip', 'zero'] as const;
export type Damage = (typeof damages)[number];

/** Result of the queries on damaged data. `silent`: a wrong result without an error, which must not happen. */
export type Verdict = 'right' | 'loud' | { readonly silent: string };

/** Damages a file at a random offset so that its bytes differ; returns a description. */
export function damageFile(file: string, damage: Damage, random: Random): string {
  const bytes = readFileSync(file);
  for (;;) {
    const at = random.integer(0, bytes.length - 1);
    if (damage === 'truncate') {
      truncateSync(file, at);
      return `truncated at ${at} of ${bytes.length}`;
    }
    const changed = Buffer.from(bytes);
    if (damage === 'flip') {
      const bit = random.integer(0, 7);
      changed[at] = (bytes[at] ?? 0) ^ (1 << bit);
      writeFileSync(file, changed);
      return `bit ${bit} flipped at ${at} of ${bytes.length}`;
    }
    const length = random.integer(16, 512);
    changed.fill(0, at, Math.min(at + length, bytes.length));
    if (changed.equals(bytes)) continue;
    writeFileSync(file, changed);
    return `${length} bytes zeroed at ${at} of ${bytes.length}`;
  }
}

/** Results of the cases of one kind of file. */
export interface DamageTally {
  readonly cases: number;
  readonly rightAnswers: number;
  readonly loudErrors: number;
  readonly silentWrong: readonly string[];
}

export interface DamageRun {
  /** A folder to copy for each case. */
  readonly original: string;
  /** Path of the copy, which is removed afterwards. */
  readonly copy: string;
  /** Lists files below the copy, absolute: each case damages one of them. */
  readonly listFiles: (copy: string) => readonly string[];
  readonly random: Random;
  /** Number of cases per kind of damage. */
  readonly offsets: number;
  readonly judge: (copy: string, file: string) => Promise<Verdict>;
}

/** Damages copies of a folder, one file and one offset at a time, and checks each. */
export async function runDamages({
  original,
  copy,
  listFiles,
  random,
  offsets,
  judge,
}: DamageRun): Promise<DamageTally> {
  let [cases, rightAnswers, loudErrors] = [0, 0, 0];
  const silentWrong: string[] = [];
  for (let n = 0; n < offsets; n += 1) {
    for (const damage of damages) {
      cpSync(original, copy, { recursive: true });
      const files = listFiles(copy);
      const file = random.pick(files);
      const done = damageFile(file, damage, random);
      const verdict = await judge(copy, file);
      cases += 1;
      if (verdict === 'right') rightAnswers += 1;
      else if (verdict === 'loud') loudErrors += 1;
      else silentWrong.push(`${file.slice(copy.length + 1)} ${done}: ${verdict.silent}`);
      rmSync(copy, { recursive: true, force: true });
    }
  }
  return { cases, rightAnswers, loudErrors, silentWrong };
}

/** Records a tally as a finding of P3. */
export function recordDamage(
  what: string,
  { cases, rightAnswers, loudErrors, silentWrong }: DamageTally,
  { seed, part }: { readonly seed: number; readonly part: string },
): void {
  const figures = { damages: cases, rightAnswers, loudErrors, silentlyWrong: silentWrong.length };
  const wanted = 'a right answer or a loud error, each time';
  const again = `make chaos PART=${part} SEED=${seed}`;
  recordFinding({
    promise: 'P3',
    what,
    wanted,
    figures,
    reached: silentWrong.length === 0,
    ...(silentWrong[0] === undefined ? {} : { shortfall: silentWrong[0] }),
    seed,
    again,
  });
}
