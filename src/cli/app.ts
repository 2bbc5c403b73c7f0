import { dataPaths } from '../config.ts';
import { addApp, addAppToken, revokeAppToken } from '../access/commands.ts';
import { platforms, type Platform } from '../model/event-kinds.ts';
import { createClock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { parseId, parseWords, resolveConfig, type Command } from './command.ts';

const addUsage = `tributary app add ID --platform ${platforms.join('|')} [--title T] [--sdk-key K] [--account N] [--project N] [--data DIR]`;
const tokenUsage = 'tributary app token ID [--revoke PREFIX] [--data DIR]';

function parsePlatform(text: string | undefined): Platform {
  const platform = platforms.find((known) => known === text);
  if (platform === undefined) throw new AppError('usage', `--platform must be one of ${platforms.join(', ')}, not '${text ?? ''}'`);
  return platform;
}

/** `tributary app add|token`: registers apps and gives or ends their import tokens. */
export const appCommand: Command = {
  name: 'app',
  usage: `${addUsage}\n       ${tokenUsage}`,
  summary: 'register an app; give it a further token, or end one',
  async run([verb, ...args], { environment, answer }) {
    switch (verb) {
      case 'add': {
        const { values, positionals } = parseWords(
          args,
          ['ID'],
          { platform: { type: 'string' }, title: { type: 'string' }, 'sdk-key': { type: 'string' }, account: { type: 'string' }, project: { type: 'string' } },
          addUsage,
        );
        const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
        answer(
          await addApp(
            dataPaths(config.dataDir),
            {
              idApp: parseId(positionals[0], 'ID'),
              platform: parsePlatform(values.platform),
              idAccount: parseId(values.account ?? '1', '--account'),
              ...(values.title === undefined ? {} : { title: values.title }),
              ...(values['sdk-key'] === undefined ? {} : { sdkKey: values['sdk-key'] }),
              ...(values.project === undefined ? {} : { idProject: parseId(values.project, '--project') }),
            },
            createClock(config.clockOffsetSeconds).nowMs(),
          ),
        );
        return;
      }
      case 'token': {
        const { values, positionals } = parseWords(args, ['ID'], { revoke: { type: 'string' } }, tokenUsage);
        const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
        const paths = dataPaths(config.dataDir);
        const idApp = parseId(positionals[0], 'ID');
        answer(
          values.revoke === undefined
            ? await addAppToken(paths, idApp, createClock(config.clockOffsetSeconds).nowMs())
            : await revokeAppToken(paths, idApp, values.revoke),
        );
        return;
      }
      default:
        throw new AppError('usage', `'app' takes add or token, not '${verb ?? ''}'`, { hint: `Usage: ${this.usage}` });
    }
  },
};
