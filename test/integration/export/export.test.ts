import { beforeAll, afterAll, describe, expect, it } from 'vitest';
import {
  createExportArea,
  send,
  targetOf,
  authHmac,
  type Credentials,
  type RunningArea,
} from '../../helpers/export-area.ts';
import { temporaryFolder, testFolder } from '../../helpers/folder.ts';
import { writeLake, type FixtureEvent } from '../../helpers/lake-fixture.ts';

const noon = Date.parse('2025-03-10T12:00:00Z') / 1000;

const events: FixtureEvent[] = [
  {
    event_id: 'e1',
    kind: 'custom_event',
    id_app: 7,
    event_time: noon,
    available_at: noon + 5.25,
    custom_user_id: 'ann',
    custom_event_name: 'level up',
    custom_event_params: { level: '3', "it's": 'a "b"\\\nc' },
  },
  {
    event_id: 'e2',
    kind: 'custom_event',
    id_app: 7,
    event_time: noon + 1,
    available_at: noon + 5.25,
    custom_event_name: 'a,b',
  },
  {
    event_id: 'e3',
    kind: 'custom_event',
    id_app: 8,
    event_time: noon + 86_400,
    available_at: noon + 86_405,
    custom_user_id: 'bob',
    custom_event_name: 'level up',
  },
  { event_id: 'e4', kind: 'login', id_app: 7, event_time: noon, available_at: noon + 5.25, custom_user_id: 'ann' },
  {
    event_id: 'e5',
    kind: 'custom_event',
    id_app: 99,
    event_time: noon,
    available_at: noon + 5.25,
    custom_event_name: 'foreign',
  },
];

describe('the export area', () => {
  const area = createExportArea(temporaryFolder());
  let running: RunningArea;
  let user: Credentials;

  beforeAll(async () => {
    await area.addApp({ idApp: 7, platform: 'web', idAccount: 1, title: 'Seven', sdkKey: 'key-7' });
    await area.addApp({ idApp: 8, platform: 'game', idAccount: 1, title: 'Eight' });
    await area.addApp({ idApp: 99, platform: 'web', idAccount: 2 });
    user = await area.addUser({});
    await writeLake(area.tableDir, [events.slice(0, 2), events.slice(2)]);
    running = await area.start();
  });
  afterAll(() => running.stop());

  it('The export area exports the custom events of the account in the order of the lake, with the selectors in the requested order', async () => {
    const [csv] = await running.export(
      user,
      'event=customEvents&selectors=eventId,idApp,SDKKey,idAppTitle,eventName,params.name,params.value,dtEvent,tsEvent,tsInsert,countCustomEvent,idAd&dateFrom=2025-03-01&dateTo=2025-03-31',
    );
    expect(csv?.split('\n').slice(0, 2)).toEqual([
      'eventId,idApp,SDKKey,idAppTitle,eventName,params.name,params.value,dtEvent,tsEvent,tsInsert,countCustomEvent,idAd',
      `e1,7,key-7,Seven,level up,"['level','it\\'s']","['3','a ""b""\\\\\\nc']",2025-03-10,${noon},${noon + 5},1,`,
    ]);
    expect(csv?.split('\n').slice(2)).toEqual([
      `e2,7,key-7,Seven,"a,b",[],[],2025-03-10,${noon + 1},${noon + 5},1,`,
      expect.stringMatching(/^e3,8,\d{20},Eight,level up,\[\],\[\],2025-03-11,/),
      '',
    ]);
  });

  it('The export area splits a result over the single-file limit into gzip parts that each begin with the header', async () => {
    const other = createExportArea(testFolder());
    await other.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
    const reader = await other.addUser({});
    await writeLake(other.tableDir, [events.slice(0, 2)]);
    const small = await other.start({ singleFileMaxBytes: 0, partMaxBytes: 12 });
    try {
      expect(await small.export(reader, 'event=customEvents&selectors=eventId&tsFrom=0&tsTo=1790000000')).toEqual([
        'eventId\ne1\n',
        'eventId\ne2\n',
      ]);
    } finally {
      await small.stop();
    }
  });

  it('The export area answers a link for GET, HEAD and ranges, and refuses it with one character changed', async () => {
    const id = await running.create(
      user,
      'event=userAuthorisations&selectors=eventId&dateFrom=2025-03-10&dateTo=2025-03-10',
    );
    const { files } = await running.waitForEnd(user, id);
    const link = targetOf(files?.[0]?.link ?? '');
    const whole = await send(running.port, link);
    expect([whole.status, whole.body.toString()]).toEqual([200, 'eventId\ne4\n']);
    const head = await send(running.port, link, { method: 'HEAD' });
    expect([head.status, head.headers['content-length'], head.body.length]).toEqual([200, '11', 0]);
    const part = await send(running.port, link, { headers: { range: 'bytes=8-9' } });
    expect([part.status, part.headers['content-range'], part.body.toString()]).toEqual([206, 'bytes 8-9/11', 'e4']);
    const forged = await send(
      running.port,
      link.replace(/.$/, (last) => (last === '0' ? '1' : '0')),
    );
    expect([forged.status, forged.json]).toEqual([403, { code: 403, message: 'Access denied', data: null }]);
  });

  it('The export area accepts AuthHMAC over the URL as received', async () => {
    const target = '/api/report/v1/file/get.json?idReportFile=123456';
    const authorization = authHmac(user, 'GET', `http://127.0.0.1:${running.port}${target}`);
    const answer = await send(running.port, target, { headers: { authorization } });
    expect(answer.json).toEqual({
      code: 404,
      message: 'Not Found',
      data: { error: { detail: 'File report request is not found' } },
    });
  });

  it('The export area refuses a caller without valid authorization, with data null', async () => {
    for (const authorization of ['', 'Basic xxx', `Basic ${Buffer.from('1:wrong').toString('base64')}`]) {
      const answer = await send(running.port, '/api/raw/v1/export/create.json?event=customEvents', {
        method: 'POST',
        headers: { authorization },
      });
      expect([answer.status, answer.json]).toEqual([403, { code: 403, message: 'Access denied', data: null }]);
    }
  });
});
