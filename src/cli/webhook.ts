import { dataPaths } from '../config.ts';
import { mostWebhooks, parseWebhookUrl } from '../export/api/webhook-routes.ts';
import { createClock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { createOutgoingRules } from '../runtime/http/outgoing-rules.ts';
import { addWebhook, listWebhooks, removeWebhook } from '../webhooks/webhook-store.ts';
import { parseId, parseWords, resolveConfig, type Command } from './command.ts';
import { assertAccount } from '../access/listing.ts';

const usages = {
  add: 'tributary webhook add URL --account ID [--data DIR]',
  list: 'tributary webhook list --account ID [--data DIR]',
  remove: 'tributary webhook remove ID --account ID [--data DIR]',
} as const;

const isVerb = (verb: string | undefined): verb is keyof typeof usages =>
  verb !== undefined && Object.hasOwn(usages, verb);

/** `tributary webhook add|list|remove`: the addresses that an account has its ended exports told to. */
export const webhookCommand: Command = {
  name: 'webhook',
  usage: Object.values(usages).join('\n'),
  summary: 'add, list and remove webhooks: addresses that are told of ended exports and of notices',
  details: [
    '--account   whose exports are told of',
    'URL         a public address, or one that TRIBUTARY_WEBHOOKS_ALLOW allows; add answers the secret that messages are signed with, once',
  ],
  async run([verb, ...args], { environment, answer }) {
    if (!isVerb(verb))
      throw new AppError('usage', `'webhook' takes ${Object.keys(usages).join(', ')}, not '${verb ?? ''}'`, {
        hint: `Usage: ${Object.values(usages).join(', ')}`,
      });
    const words = { add: ['URL'], list: [], remove: ['ID'] }[verb];
    const { values, positionals } = parseWords(args, words, { account: { type: 'string' } }, usages[verb]);
    const idAccount = parseId(values.account, '--account');
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
    const paths = dataPaths(config.dataDir);
    const [word = ''] = positionals;
    if (verb === 'list') {
      for (const { sealedSecret: _, ...webhook } of await listWebhooks(paths, idAccount)) answer(webhook);
      return 0;
    }
    if (verb === 'remove') {
      if (!(await removeWebhook(paths, idAccount, word)))
        throw new AppError('not_found', `account ${idAccount} has no webhook ${word}`, {
          hint: "'tributary webhook list' names them.",
        });
      answer({ idWebhook: word, removed: true });
      return 0;
    }
    assertAccount(paths, idAccount);
    const rules = createOutgoingRules(config.webhooksAllow);
    if (typeof rules === 'string')
      throw new AppError('config_invalid', `TRIBUTARY_WEBHOOKS_ALLOW holds '${rules}'`, {
        hint: 'Name networks such as 10.1.0.0/16 and names such as hooks.example.com.',
      });
    const url = parseWebhookUrl(word, rules);
    if (typeof url === 'string') throw new AppError('usage', `URL ${url}`, { hint: `Usage: ${usages.add}` });
    const nowMs = createClock(config.clockOffsetSeconds).nowMs();
    const { webhook, secret } = await addWebhook(paths, { idAccount, url: url.href }, { nowMs, most: mostWebhooks });
    answer({ idWebhook: webhook.idWebhook, idAccount, url: webhook.url, secret });
    return 0;
  },
};
