import path from 'node:path';
import type { ListInput, RejectedList } from '../admin/lists/text-lines.ts';
import { AppError } from '../runtime/errors.ts';
import { streamFile } from '../runtime/files/input-file.ts';
import { defineDataCommand, type CommandContext, type DataContext, type CommandGroup } from './command.ts';
import { assertAccount } from '../access/users.ts';
import { addSegment } from '../admin/lists/add-segment.ts';
import { listSegments, removeSegment, segmentKinds, type SegmentId } from '../segments/segment-store.ts';
import { file, oneOf, positive, required, withDefault } from './option-specs.ts';

/** Opens a list: a file, or standard input for `-`. Error: `usage`. */
export function openList(word: string, { input }: Pick<CommandContext, 'input'>): ListInput {
  if (word !== '-') return { name: word, pieces: streamFile(path.resolve(word)) };
  if (input === undefined)
    throw new AppError('usage', 'standard input is not available', { hint: 'Pass a file instead of -.' });
  return { name: 'standard input', pieces: input() };
}

/** Prints the rejected lists; returns the exit code. */
export function printRejectedLists(
  refused: readonly RejectedList[],
  { printResult, printMessage }: CommandContext,
): number {
  for (const list of refused) {
    printResult(list);
    const [first] = list.first;
    printMessage(`${list.file}: ${list.badLines} bad lines; the first, line ${first?.line}, ${first?.reason}`);
  }
  printMessage('nothing was changed');
  return 1;
}

/** Renders ids as texts. */
function showId<T extends SegmentId>({ idAccount, idSegment, ...rest }: T) {
  return { idSegment: String(idSegment), idAccount: String(idAccount), ...rest };
}

export function toListOptions({ config, clock, stop }: DataContext) {
  return { clock, memoryMb: config.duckdbMemoryMb, signal: stop };
}

const account = required(positive('id of the account that owns the segment'));

const add = defineDataCommand({
  name: 'add',
  summary: 'create a segment, or replace the one with this id',
  arguments: {
    ID: positive('segment id, for the idSegment filter of exports'),
    FILE: file('ids, one per line, also gzip; - for standard input'),
  },
  options: {
    account,
    kind: withDefault(oneOf(segmentKinds, 'type of the ids: custom user ids, or device ids of any type'), 'custom'),
  },
  examples: ['segment add 5 --account 1 payers.txt', 'segment add 6 --account 1 --kind device -'],
  exitCodes: { 1: 'the file has bad lines, which are listed; nothing was changed' },
  async run({ ID: idSegment, FILE: name, account: idAccount, kind }, context) {
    await assertAccount(context.paths, idAccount);
    const segment = { idSegment, idAccount, kind };
    const given = openList(name, context);
    const added = await addSegment(context.paths.segments, segment, given, toListOptions(context));
    return 'badLines' in added ? printRejectedLists([added], context) : showId(added);
  },
});

const list = defineDataCommand({
  name: 'list',
  summary: 'list the segments',
  isList: true,
  options: { account: positive('only segments of this account') },
  examples: ['segment list', 'segment list --account 1'],
  async run({ account: idOfAll }, { paths }) {
    const segments = await listSegments(paths.segments, idOfAll);
    return segments.map(({ idSegment, idAccount, kind, ids, sizeBytes: bytes, addedAt }) =>
      showId({ idSegment, idAccount, kind, members: ids, ids, bytes, addedAt }),
    );
  },
});

const remove = defineDataCommand({
  name: 'remove',
  summary: 'remove a segment',
  arguments: { ID: positive("segment id, see 'tributary segment list'") },
  options: { account },
  examples: ['segment remove 5 --account 1'],
  async run({ ID: idSegment, account: idAccount }, { paths }) {
    const segment = { idSegment, idAccount };
    await removeSegment(paths.segments, segment);
    return { ...showId(segment), removed: true };
  },
});

export const segmentCommand: CommandGroup = {
  name: 'segment',
  summary: 'create, list and remove segments: users or devices for the idSegment filter of exports',
  commands: [add, list, remove],
};
