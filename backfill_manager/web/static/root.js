// Where this server is: at `/`, or under the path of `api.public_url`. This file is two folders below it.

const ROOT = new URL("../..", import.meta.url).pathname.slice(0, -1);

export const rooted = (path) => ROOT + path;
