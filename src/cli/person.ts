import path from 'node:path';
import { exportPerson } from '../admin/erase/export-person.ts';
import { userKinds } from '../admin/erase/erase-target.ts';
import { assertWritableFolder } from '../runtime/files/file-checks.ts';
import { AppError } from '../runtime/errors.ts';
import { defined } from '../runtime/files/checksummed-json.ts';
import { defineDataCommand, type CommandGroup } from './command.ts';
import { assertUnambiguousIds, engineLimits, parseApps, readAllApps } from './erase.ts';
import { withEvents } from './lake-engine.ts';
import { failUsage, file, many, oneOf, positive, required, text, withDefault } from './option-specs.ts';

const exportVerb = defineDataCommand({
  name: 'export',
  summary: 'export all that the lake has of a person into a new folder',
  arguments: { ID: many(text('id of the person; of several, rows match any')) },
  options: {
    output: { ...required(file('folder to create')), letter: 'o' },
    idType: withDefault(oneOf(['user', 'device'], 'type of the ids'), 'user'),
    userIdType: oneOf(userKinds, 'type of the user ids; needed if an id exists in several types'),
    app: positive('only events of this app', 'ID'),
    account: positive('only apps of this account'),
  },
  details: [
    "Writes JSON lines per table, failed events, rows in quarantine and a manifest. The counts equal those of 'erase --dry-run'.",
    'Events that the lake does not have yet, usually those of the last seconds, are not included.',
  ],
  examples: ['person export 4711 -o person-4711', 'person export ID-1 ID-2 --id-type device --account 1 -o devices'],
  async run({ ID: ids, output, idType, userIdType, app, account }, context) {
    const listAllApps = await readAllApps(context);
    if (userIdType !== undefined && idType !== 'user') failUsage('--user-id-type needs ids of a user');
    const target = defined({
      users: idType === 'user' ? ids : undefined,
      userKind: userIdType,
      devices: idType === 'device' ? ids : undefined,
      apps: parseApps(app, account, listAllApps),
    });
    const parent = path.dirname(path.resolve(output));
    await assertWritableFolder(parent).catch((error: unknown) => {
      throw new AppError('not_found', `cannot write to ${parent}`, {
        cause: error,
        hint: 'Pass another folder with -o.',
      });
    });
    const exported = await withEvents(context, engineLimits(context), (events) =>
      exportPerson({ ...events, signal: context.stop }, target, {
        folder: output,
        assertMeant: (found) => assertUnambiguousIds(found, target, listAllApps, 'nothing was written'),
      }),
    );
    context.printMessage(
      'tributary: events that the lake does not have yet, usually those of the last seconds, are not included',
    );
    return exported;
  },
});

export const personCommand: CommandGroup = {
  name: 'person',
  summary: 'export the data of a person for the right of access',
  commands: [exportVerb],
};
