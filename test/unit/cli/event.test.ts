import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import type { CommandContext } from '../../../src/cli/command.ts';
import { eventCommand } from '../../../src/cli/event.ts';
import { testFolder } from '../../helpers/folder.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

it('An event id that is found only by its app needs --app if no app exists', async () => {
  const data = testFolder();
  mkdirSync(path.join(data, 'lake'));
  const find = (...words: string[]): Promise<unknown> =>
    runCommandHere(eventCommand, [...words, '--data', data], { environment: {} } as CommandContext);
  const [plain, keyed] = ['01928f3e-6a2b-7c4d-8e5f-0123456789ab', '01928f3e-6a2b-8c4d-8e5f-0123456789ab'];
  await expect(find(keyed)).rejects.toMatchObject({
    code: 'usage',
    message: expect.stringMatching('--app') as unknown,
  });
  await expect(find(keyed, '--app', '7')).rejects.toMatchObject({ code: 'broker_away' });
  await expect(find(plain)).rejects.toMatchObject({ code: 'broker_away' });
});
