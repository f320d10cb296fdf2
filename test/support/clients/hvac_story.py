"""The story of a Python program: logs in with a directory password, makes a static role, reads its password, lists, rotates."""

import json
import os
import sys

import hvac

address, ca, root_token, directory = sys.argv[1:5]
told = {}

admin = hvac.Client(url=address, token=root_token, verify=ca)
ldap = admin.secrets.ldap
ldap.configure(
    mount_point="ldap-hvac",
    binddn="cn=svc-manager,ou=services,dc=example,dc=test",
    bindpass="svc-manager-secret",
    url=directory,
    userdn="ou=services,dc=example,dc=test",
    userattr="uid",
)
told["config"] = ldap.read_config(mount_point="ldap-hvac")["data"]["binddn"]
ldap.create_or_update_static_role(
    name="hvac/app", username="lib-2", rotation_period="24h", mount_point="ldap-hvac"
)
told["role"] = ldap.read_static_role(name="hvac/app", mount_point="ldap-hvac")["data"]["username"]
told["folders"] = ldap.list_static_roles(mount_point="ldap-hvac")["data"]["keys"]

person = hvac.Client(url=address, verify=ca)
login = person.auth.ldap.login(username="alice", password="alice-secret", mount_point="people-hvac")
told["policies"] = login["auth"]["policies"]
before = person.secrets.ldap.generate_static_credentials(name="hvac/app", mount_point="ldap-hvac")["data"]
ldap.rotate_static_credentials(name="hvac/app", mount_point="ldap-hvac")
after = person.secrets.ldap.generate_static_credentials(name="hvac/app", mount_point="ldap-hvac")["data"]
told["turned"] = before["password"] != after["password"] and after["last_password"] == before["password"]
told["password"] = after["password"]
told["dn"] = after["dn"]
try:
    person.secrets.ldap.read_config(mount_point="ldap-hvac")
except hvac.exceptions.Forbidden:
    told["forbidden"] = True
try:
    person.auth.ldap.login(username="alice", password="wrong", mount_point="people-hvac")
except hvac.exceptions.InvalidRequest:
    told["refused"] = True
ldap.delete_static_role(name="hvac/app", mount_point="ldap-hvac")
print(json.dumps(told), file=os.fdopen(3, "w"))
