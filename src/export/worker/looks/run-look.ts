/**
 * Looks: what an export would be, or its first rows, without making one.
 *
 * In: a plan (jobs/look-messages.ts), one snapshot of the lake. Out: one outcome. Nothing is written: no work folder,
 * no spilling; lists are read where they lie, after a look at their hash.
 * Invariant: what is said of a result holds for the version that is named with it.
 * Crash: nothing is left.
 */
import path from 'node:path';
import { describeError, isAppError, isDamage } from '../../../runtime/errors.ts';
import { findSize } from '../../../runtime/files/file-checks.ts';
import type { DataFile } from '../../../lake/log/snapshot.ts';
import type { LookOutcome, LookPlan } from '../../jobs/look-messages.ts';
import { assertBasisWhole, describeBasis, findBasis, type Basis } from '../basis.ts';
import { assertListWhole } from '../pinned-file.ts';
import { openQueryEngine, type QueryEngine } from '../query-engine.ts';
import { LimitError } from '../watch-statement.ts';
import { estimate, listFiles } from './estimate.ts';
import { preview, previewQuery } from './preview.ts';

/** A look needs the memory of some row groups; what needs more is not for a look. */
const engineMemoryMb = 384;
/** Snapshots that a look is begun on, at most: files that are replaced meanwhile may be gone where little is kept. */
const attempts = 3;
const tooLarge = 'The preview needs more memory than it may take. Ask for fewer days or apps, or without order';

async function openEngine(
  { apps, segment, titles, tableDir, limits }: LookPlan,
  inline: boolean,
): Promise<QueryEngine> {
  const lists = [segment, titles].flatMap((list) => (list === undefined ? [] : [path.dirname(list.file)]));
  return await openQueryEngine({
    apps,
    inline,
    folders: [tableDir, ...lists],
    tempDir: '',
    tempMaxBytes: 0,
    memoryMb: Math.min(limits.memoryMb, engineMemoryMb),
    threads: limits.threads,
  });
}

/** Runs with an engine of its own. */
async function withEngine<T>(plan: LookPlan, inline: boolean, work: (engine: QueryEngine) => Promise<T>): Promise<T> {
  const engine = await openEngine(plan, inline);
  try {
    return await work(engine);
  } finally {
    engine.close();
  }
}

/** Compares the sizes of files, which costs nothing, and where one is another its bytes. Errors: `file_damaged`. */
async function assertThere({ request }: LookPlan, { snapshot }: Basis, files: readonly DataFile[]): Promise<void> {
  for (const file of files)
    if ((await findSize(file.absolutePath)) !== file.sizeBytes) await assertBasisWhole(request, snapshot, [file]);
}

async function look(plan: LookPlan): Promise<LookOutcome> {
  const found = await findBasis(plan);
  if (plan.look === 'estimate') {
    const files = listFiles(plan, found);
    await assertThere(plan, found, files);
    const told = await withEngine(plan, true, (engine) => estimate(plan, found, files, engine)).catch(
      // A footer that cannot be read: the bytes of its file say why.
      (error: unknown) => assertBasisWhole(plan.request, found.snapshot, files).then(() => Promise.reject(error)),
    );
    return { kind: 'estimate', estimate: { ...told, basis: await describeBasis(plan, found) } };
  }
  for (const list of [plan.segment, plan.titles]) if (list !== undefined) await assertListWhole(list, list.file);
  const query = previewQuery(plan, found);
  const told = await withEngine(plan, query.inline, (engine) => preview(plan, found, query, engine));
  return { kind: 'preview', preview: { ...told, basis: await describeBasis(plan, found) } };
}

/** Looks at an export. Never throws: what went wrong is the outcome. */
export async function runLook(plan: LookPlan): Promise<LookOutcome> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await look(plan);
    } catch (error) {
      if (error instanceof LimitError) return { kind: 'failed', reason: 'user', error: error.message };
      if (isAppError(error, 'memory')) return { kind: 'failed', reason: 'user', error: tooLarge };
      const mayPass = isAppError(error) && error.retryable && attempt < attempts;
      if (!mayPass)
        return { kind: 'failed', reason: isDamage(error) ? 'damage' : 'error', error: describeError(error) };
    }
  }
}
